"""What `./ladder` does: pick a backend, set up what is missing, build, and hand over to the programs."""

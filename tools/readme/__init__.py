"""Generated parts of the READMEs, between markers, made from results/."""

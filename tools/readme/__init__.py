"""What the READMEs show between markers, made from results/."""

"""What the daemon tells its operator: lines on a terminal or in files, for people or as JSON."""

"""What completion costs on this machine, beside baselines run side by side; and whether a GPU does what it should."""

"""Coverage-guided fuzzing, by `make fuzz`."""

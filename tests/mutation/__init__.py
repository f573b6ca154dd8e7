"""Mutation testing: changes one thing in the rules at a time, and sees whether a test notices."""

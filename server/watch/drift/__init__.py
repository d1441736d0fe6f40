"""Drift as pure functions: divergences, their noise floors, features of rows, and the rule that raises an alarm."""

"""Watching a run: as figures, alarms and pages. Nothing here changes a stream."""

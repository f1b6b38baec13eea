"""What `import lethe` offers to programs: functions that take arrays, models or folders, and their results."""

"""Drivers of the coordinators' cores: logs, timers and answers around `sparkraft.coordinator`."""

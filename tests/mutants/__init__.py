"""Planted bugs, and the seeds at which the simulation reports them."""

"""The world as a test may have it: faulty disks, networks and clocks, by seed."""

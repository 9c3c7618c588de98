"""What the simulation runs on: loop, network, disks, machines, fault points, trace."""

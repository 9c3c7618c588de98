"""The simulated environment: loop, network, disks, machines, fault points, trace."""

"""What this machine has for hfcomp, and what is missing: packages, devices, disks, the Hub. For `hfcomp doctor`."""

"""``train``: any loop, any roles; how every run is checked and started."""

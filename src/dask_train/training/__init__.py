"""``train``: a loop of the user's in any roles; and how every run, of any verb, is checked and started."""

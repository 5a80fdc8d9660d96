"""Messages and arrays between processes: Unix sockets, shared memory and TCP, under the cluster's TLS."""

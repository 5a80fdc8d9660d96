"""What the roles of ``fit`` do, written against a session as any user's function is; importing it imports no Keras."""

"""What a gate's verdict is made of: claims, guards, the witness, first steps, users needed, events."""

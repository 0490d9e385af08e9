"""Reading and writing model folders."""

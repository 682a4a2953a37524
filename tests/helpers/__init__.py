"""What the tests share: instances, references, real processes, faults."""

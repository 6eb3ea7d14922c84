"""What two networks are to each other: layers paired and matched, their tensors, values traced through them, and forms of one."""

"""What every part agrees on: header names, codes, topics, record layouts. Pure, no I/O."""

"""What the reading of one stranger's text may take. An honest upload takes some hundredths of it."""

CPU_S = 3
WALL_S = 20.0
MEMORY_BYTES = 512 << 20  # address space, and twice the text
NICENESS = 10  # of what takes longer than an honest text: the web server's answers come first
NICE_AFTER_S = 0.2
AT_ONCE = 2  # uploads of each web process, and as many texts for its pages
CHILDREN = 2 * AT_ONCE
TEXTS_OF_A_CHILD = 20
FRESH_AFTER_S = 0.1  # of computing: a child that had more to do with a text reads no other
MAX_WAITING = 64
MAX_OF_ONE_ACCOUNT = 8  # waiting or being read
STARTED = b"+"  # begins a child's first line, with its number: from here on, its end is the text's fault

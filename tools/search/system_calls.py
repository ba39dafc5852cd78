"""Filter of a candidate's system calls, for bubblewrap: refuses memory that no limit counts.

RLIMIT_DATA counts private memory that can be written, and memory.py what processes have mapped. The filter refuses the
rest: shared mappings, stacks that grow, files and segments in memory, and user namespaces, in which a file system of memory
could be mounted. It is for the emulator: the driver of a GPU shares memory.
"""

import functools
import os
import platform
import struct

# {machine: (its AUDIT_ARCH, {call: number})}; asm/unistd.h
_MACHINES = {
    "x86_64": (0xC000003E, {"mmap": 9, "clone": 56, "shmget": 29, "msgget": 68, "unshare": 272, "memfd_create": 319}),
    "aarch64": (
        0xC00000B7,
        {"mmap": 222, "clone": 220, "shmget": 194, "msgget": 186, "unshare": 97, "memfd_create": 279},
    ),
}
_CLONE3, _MEMFD_SECRET = 435, 447  # the same on every machine
_X32 = 0x40000000  # bit of the numbers of x86-64's third set of calls
_NEW_USER = 0x10000000  # CLONE_NEWUSER
_SHARED_OR_GROWS = 0x101  # MAP_SHARED and MAP_SHARED_VALIDATE have bit 0, MAP_GROWSDOWN bit 8

# Instructions of classic BPF; a jump has the number of instructions to skip if it holds, and if not.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENT = 0, 4, lambda index: 16 + 8 * index  # offsets in struct seccomp_data
_ALLOW, _EPERM, _ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026


@functools.cache
def filter_file():
    """The path of the filter's program, which this process keeps open; None for a machine without a table."""
    if platform.machine() not in _MACHINES:
        return None
    file = os.memfd_create("filter")
    os.write(file, b"".join(struct.pack("=HBBI", *each) for each in _program(*_MACHINES[platform.machine()])))
    return f"/proc/{os.getpid()}/fd/{file}"


def _program(arch, numbers):
    # Without clone3, glibc calls clone, whose flags the filter sees.
    refused = {_CLONE3: _ENOSYS, _MEMFD_SECRET: _EPERM}
    refused.update({number: _EPERM for call, number in numbers.items() if call not in ("mmap", "clone")})
    bits_of = ((numbers["clone"], 0, _NEW_USER), (numbers["mmap"], 3, _SHARED_OR_GROWS))
    lines = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _EPERM), (_LOAD, 0, 0, _NUMBER)]
    lines += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _EPERM)]
    for number, answer in refused.items():
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer)]
    for number, argument, bits in bits_of:
        lines += [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, _ARGUMENT(argument))]
        lines += [(_ANY_BIT, 0, 1, bits), (_RETURN, 0, 0, _EPERM), (_RETURN, 0, 0, _ALLOW)]
    return [*lines, (_RETURN, 0, 0, _ALLOW)]

// Buffers that a kernel may read and not write, so that one that borrows an input and gives it back is found out.
#pragma once

namespace ladder::backend {

// While a buffer of backend::allocate() is read-only, a kernel's write to it is a fault on the emulator. Nothing on a GPU.
void set_read_only(void* buffer, bool read_only);

}  // namespace ladder::backend

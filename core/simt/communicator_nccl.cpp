// core/communicator.h on the emulator: no NCCL.
#include "core/communicator.h"
#include "core/error.h"

namespace ladder {

std::unique_ptr<Communicator> make_nccl_communicator(int, int,
                                                     const std::function<std::vector<std::string>(std::string_view)>&) {
  throw Failure("the emulator has no NCCL: --collectives host is right");
}

}  // namespace ladder

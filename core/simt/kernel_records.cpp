// core/kernel_records.h on the emulator, which has none.
#include "core/kernel_records.h"

#include "core/error.h"

namespace ladder {

KernelRecords::KernelRecords() { throw Failure("the emulator keeps no kernel records"); }
KernelRecords::~KernelRecords() = default;
std::uint64_t KernelRecords::id_of(const void*) const { return 0; }
std::vector<NodeRecord> KernelRecords::take() { return {}; }

}  // namespace ladder

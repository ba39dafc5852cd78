// Refused: asks for ladder::register_reference
#include "core/check/check.h"

namespace ladder {

NamedOutputs zeros(const Case&, const HostTensors&) { return {}; }

void launch(const Pass& pass) { register_reference(pass, zeros); }

}  // namespace ladder

// On the emulator, wrappers of instructions take the kernel's source line as a last, defaulted parameter, and faults name
// it. On the GPU the parameter does not exist.
#pragma once

#if defined(__CUDACC__)
#define LADDER_WHERE
#define LADDER_WHERE_ALONE
#define LADDER_WHERE_IN
#else
#include "core/simt/fault.h"
#define LADDER_WHERE_ALONE ::ladder::simt::Where where = ::ladder::simt::Where::here()  // the only parameter
#define LADDER_WHERE , LADDER_WHERE_ALONE
#define LADDER_WHERE_IN , ::ladder::simt::Where where  // in a specialisation: its primary template has the default
#endif

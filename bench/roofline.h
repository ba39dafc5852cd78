// Limits of the hardware: the lower bound of every time, and the roofline that figures are percentages of.
#pragma once

#include "core/backend.h"
#include "core/registry.h"

namespace ladder {

// Dense floating-point operations per second of the device at its highest clock, for arithmetic on `dtype` with fp32
// accumulation; 0 for an architecture that is not in the table.
double peak_flops(const backend::DeviceInfo& device, Dtype dtype);

// Lower bounds, in seconds, of a kernel that does the version's least arithmetic (VersionDef) and, cold, reads its
// inputs from DRAM. With warm caches only the arithmetic counts. 0 if nothing is known.
double cold_lower_bound_seconds(const backend::DeviceInfo& device, const Case& c, const AnyVersionDef& def = {});
double warm_lower_bound_seconds(const backend::DeviceInfo& device, const Case& c, const AnyVersionDef& def = {});

// Roofline time in seconds, the longer of two: the formula's arithmetic at the peak, or reading every input and writing
// every output once.
double roofline_seconds(const backend::DeviceInfo& device, const Case& c);

// Returns true if moving the bytes takes longer than the arithmetic: a rate of arithmetic then says nothing. False if
// either is unknown.
bool memory_bound(const backend::DeviceInfo& device, const Case& c);

}  // namespace ladder

// What the hardware cannot exceed: the lower bound under every time, and the roof that figures are percentages of.
#pragma once

#include "core/backend.h"
#include "core/registry.h"

namespace ladder {

// Dense floating-point operations per second of the device at its highest clock, for arithmetic on `dtype` with fp32
// accumulation; 0 for an architecture that is not in the table.
double peak_flops(const backend::DeviceInfo& device, Dtype dtype);

// Seconds below which no kernel can be that does the version's least arithmetic (VersionDef) and reads its inputs from DRAM; with warm
// caches only the arithmetic counts. 0 if nothing is known.
double cold_lower_bound_seconds(const backend::DeviceInfo& device, const Case& c, const AnyVersionDef& def = {});
double warm_lower_bound_seconds(const backend::DeviceInfo& device, const Case& c, const AnyVersionDef& def = {});

// The roofline's time: the formula's arithmetic at the peak, or every input read and every output written once, whichever is longer.
double roofline_seconds(const backend::DeviceInfo& device, const Case& c);

// Whether moving the bytes takes the longer of the two: then a rate of arithmetic says nothing. False if either is unknown.
bool memory_bound(const backend::DeviceInfo& device, const Case& c);

}  // namespace ladder

#include "nn/state.h"

#include "core/backend.h"
#include "core/error.h"
#include "core/parallel.h"

namespace ladder::nn {

State::State(const Parameters& parameters, Dtype stored_as)
    : values("values", parameters.size() * sizeof(float)),
      first_moments("first moments", values.bytes),
      second_moments("second moments", values.bytes),
      average("average", values.bytes),
      stored(storage_dtype(stored_as)) {
  if (stored != Dtype::f32) copies = std::make_unique<OwnedRegion>("copies", parameters.size() * size_of(stored));
}

void State::set(const OwnedRegion& which, const std::vector<float>& host) {
  LADDER_CHECK(host.size() * sizeof(float) == which.bytes, which.name);
  backend::copy_in(which.base, host.data(), which.bytes);
}

void State::set_values(const std::vector<float>& host) {
  set(values, host);
  if (copies) copy_rounded(host, stored, *copies);
}

std::vector<float> State::get(const OwnedRegion& which) const {
  std::vector<float> host(which.bytes / sizeof(float));
  backend::copy_out(host.data(), which.base, which.bytes);
  return host;
}

std::size_t State::bytes() const { return 4 * values.bytes + (copies ? copies->bytes : 0); }

void copy_rounded(const std::vector<float>& flat, Dtype dtype, const OwnedRegion& to) {
  LADDER_CHECK(flat.size() * size_of(dtype) == to.bytes, to.name);
  std::vector<std::byte> rounded(to.bytes);
  const std::size_t element_bytes = size_of(dtype);
  parallel_for(static_cast<std::int64_t>(flat.size()), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    encode(dtype, flat.data() + begin, end - begin, rounded.data() + begin * element_bytes);
  });
  backend::copy_in(to.base, rounded.data(), rounded.size());
}

}  // namespace ladder::nn

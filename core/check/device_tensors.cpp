#include "core/check/device_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "core/backend.h"
#include "core/early_tensors.h"
#include "core/parallel.h"
#include "core/read_only.h"

namespace ladder {
namespace {

#if defined(LADDER_ASAN)
constexpr std::size_t kGuardBytes = 0;  // AddressSanitizer watches what surrounds an allocation
#else
constexpr std::size_t kGuardBytes = 4096;
#endif
constexpr int kPoison = 0xff;  // makes every dtype a NaN
constexpr std::int64_t kGrain = 1 << 16;

using Bytes = std::vector<unsigned char>;

// Guard bytes: canaries that are NaNs in every dtype, so that an element read from outside its tensor shows in the
// result. None of them is poison, and neighbours differ, so that copying over a band shows too.
Bytes make_guard() {
  Bytes guard(kGuardBytes);
  for (std::size_t i = 0; i < guard.size(); i += 2) {
    guard[i] = static_cast<unsigned char>(0x81 + i / 2 % 0x7d);
    guard[i + 1] = 0xff;
  }
  return guard;
}

// Random bytes whose values show in a sum: every 16 bits have magnitude 1 to 2 as fp16, 2^-7 to 2 as bf16 and as the
// upper half of an fp32. The sequence repeats after 1 MiB.
Bytes random_numbers(std::size_t bytes) {
  constexpr std::size_t kPeriod = 1 << 20;
  Bytes numbers(bytes);
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < std::min(bytes, kPeriod); ++i) {
    state = state * 1664525u + 1013904223u;  // Numerical Recipes
    numbers[i] = static_cast<unsigned char>(i % 2 ? (state >> 24 & 0x83u) | 0x3cu : state >> 24);
  }
  for (std::size_t done = kPeriod; done < bytes; done += kPeriod) {
    std::copy_n(numbers.begin(), std::min(kPeriod, bytes - done), numbers.begin() + done);
  }
  return numbers;
}

const Bytes& guard(Bands bands) {
  static const Bytes canaries = make_guard();
  static const Bytes numbers = random_numbers(kGuardBytes);
  return bands == Bands::canaries ? canaries : numbers;
}

// Returns the index of the first byte that differs, if any.
std::optional<std::size_t> first_difference(std::span<const unsigned char> a, std::span<const unsigned char> b) {
  if (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0) return std::nullopt;
  const auto [difference, _] = std::mismatch(a.begin(), a.end(), b.begin());
  return difference == a.end() ? std::nullopt : std::optional<std::size_t>(difference - a.begin());
}

// Bytes of the allocation before and after a buffer of `bytes`.
struct BandBytes {
  std::size_t before;
  std::size_t after;
};

// The emulator ends a buffer, up to 16 bytes, at the end of its allocation, where an inaccessible page begins. A GPU
// does the same with LADDER_GUARDS=0 in the environment, for compute-sanitizer.
BandBytes band_bytes(std::size_t bytes) {
  if (backend::kind() == backend::Kind::gpu) {
    static const char* const given = std::getenv("LADDER_GUARDS");
    return {kGuardBytes, given && std::string_view(given) == "0" ? 0 : kGuardBytes};
  }
  if (kGuardBytes == 0) return {0, 0};
  constexpr std::size_t kAlignment = 16;
  constexpr std::size_t kAllocation = 256;
  const auto round_up = [](std::size_t n, std::size_t multiple) { return (n + multiple - 1) / multiple * multiple; };
  const std::size_t aligned = round_up(bytes, kAlignment);
  return {round_up(kGuardBytes + aligned, kAllocation) - aligned, aligned - bytes};
}

// A buffer between two guard bands. The second band begins at the byte after the buffer.
class Buffer {
 public:
  Buffer(std::string name, std::size_t bytes, Bands bands)
      : name_(std::move(name)),
        bytes_(bytes),
        guard_(&guard(bands)),
        bands_(band_bytes(bytes)),
        base_(backend::allocate(bands_.before + bytes + bands_.after), backend::release) {
    backend::copy_in(data() - kGuardBytes, guard_->data(), kGuardBytes);
    backend::copy_in(data() + bytes_, guard_->data(), bands_.after);
    backend::name_memory(data(), bytes_, name_);
  }

  unsigned char* data() const { return static_cast<unsigned char*>(base_.get()) + bands_.before; }
  std::size_t bytes() const { return bytes_; }

  // Fill an input, which must hold `contents` from now on.
  void expect(Bytes contents) {
    given_ = std::move(contents);
    backend::copy_in(data(), given_.data(), bytes_);
  }

  // Fill an inout, which holds `contents` before each launch; the launch may write it.
  void begin_with(Bytes contents) {
    given_ = std::move(contents);
    if (!initial_) initial_ = {backend::allocate(bytes_), backend::release};
    backend::copy_in(initial_.get(), given_.data(), bytes_);
    reset(Contents::nan);
  }

  // Restore an inout, or set an output or workspace to `contents`. Inputs stay.
  void reset(Contents contents) const {
    if (initial_) {
      backend::copy(data(), initial_.get(), bytes_);
    } else if (given_.empty()) {
      set(contents);
    }
  }

  void protect(bool on) const {
    if (!initial_ && !given_.empty()) backend::set_read_only(base_.get(), on);
  }

  void hide() const {
    if (!given_.empty()) backend::set_bytes(data(), kPoison, bytes_);
  }
  // Put the input back, without waiting for any stream.
  void show() const {
    if (!given_.empty()) backend::poke(data(), given_.data(), bytes_);
  }

  // Returns true if no byte was written. Waits for no stream. Samples pieces of a large buffer: a stream is held back
  // for a second at most.
  bool untouched() const {
    constexpr std::size_t kPiece = 1 << 16;
    constexpr std::size_t kMostPieces = 512;
    const std::size_t step = std::max(kPiece, bytes_ / kMostPieces);
    Bytes contents;
    Bytes right;
    for (std::size_t begin = 0; begin < bytes_; begin += step) {
      contents.resize(std::min(kPiece, bytes_ - begin));
      right.assign(contents.size(), kPoison);
      backend::peek(contents.data(), data() + begin, contents.size());
      if (initial_) {
        backend::peek(right.data(), static_cast<const unsigned char*>(initial_.get()) + begin, right.size());
      }
      if (contents != right) return false;
    }
    return true;
  }

  Bytes read() const {
    Bytes contents(bytes_);
    backend::copy_out(contents.data(), data(), bytes_);
    return contents;
  }

  std::string damage(Dtype dtype) const {
    Bytes band(kGuardBytes);
    backend::copy_out(band.data(), data() - kGuardBytes, kGuardBytes);
    if (const auto offset = first_difference(band, *guard_)) {
      return fmt::format("{}: overwritten {} bytes before its start", name_, kGuardBytes - *offset);
    }
    band.resize(bands_.after);
    backend::copy_out(band.data(), data() + bytes_, band.size());
    if (const auto offset = first_difference(band, *guard_)) {
      return fmt::format("{}: overwritten {} bytes past its end", name_, *offset);
    }
    if (!initial_ && !given_.empty()) {
      if (const auto offset = first_difference(read(), given_)) {
        return fmt::format("input {}: changed at element {}", name_, *offset / size_of(dtype));
      }
    }
    return {};
  }

 private:
  void set(Contents contents) const {
    if (contents == Contents::kept) return;
    if (contents == Contents::nan || contents == Contents::zero) {
      backend::set_bytes(data(), contents == Contents::nan ? kPoison : 0, bytes_);
      return;
    }
    constexpr std::size_t kLine = 16;
    constexpr std::size_t kOf = 8;  // partly random: one line in 8
    Bytes bytes = random_numbers(bytes_);
    if (contents == Contents::partly_random) {
      const Bytes random = std::exchange(bytes, read());
      for (std::size_t i = kOf / 2 * kLine; i < bytes_; i += kOf * kLine) {
        std::copy_n(random.begin() + i, std::min(kLine, bytes_ - i), bytes.begin() + i);
      }
    }
    backend::copy_in(data(), bytes.data(), bytes_);
  }

  std::string name_;
  std::size_t bytes_;
  const Bytes* guard_;
  BandBytes bands_;
  std::unique_ptr<void, void (*)(void*) noexcept> base_;
  Bytes given_;                                                                         // of an input or inout
  std::unique_ptr<void, void (*)(void*) noexcept> initial_{nullptr, backend::release};  // of an inout
};

}  // namespace

Bytes encoded(const TensorSpec& spec, const std::vector<float>& values) {
  Bytes stored(spec.bytes());
  const std::size_t size = size_of(spec.dtype);
  parallel_for(std::ssize(values), kGrain, [&](std::int64_t begin, std::int64_t end) {
    encode(spec.dtype, values.data() + begin, end - begin, stored.data() + begin * size);
  });
  return stored;
}

std::vector<float> decoded(const TensorSpec& spec, const Bytes& stored) {
  std::vector<float> values(spec.elements());
  const std::size_t size = size_of(spec.dtype);
  parallel_for(std::ssize(values), kGrain, [&](std::int64_t begin, std::int64_t end) {
    decode(spec.dtype, stored.data() + begin * size, end - begin, values.data() + begin);
  });
  return values;
}

struct DeviceTensors::Impl {
  std::vector<TensorSpec> specs;
  std::vector<Buffer> buffers;  // one for each spec, then the workspace
  std::vector<void*> pointers;

  bool is_written(std::size_t i) const { return i < specs.size() && specs[i].is_written(); }
  Dtype dtype(std::size_t i) const { return i < specs.size() ? specs[i].dtype : Dtype::f32; }
};

DeviceTensors::DeviceTensors(const Case& c, std::size_t workspace_bytes, Bands bands)
    : impl_(std::make_unique<Impl>()) {
  impl_->specs = c.tensors;
  for (const TensorSpec& spec : c.tensors) {
    impl_->buffers.emplace_back(spec.name, spec.bytes(), bands);
    impl_->pointers.push_back(impl_->buffers.back().data());
  }
  impl_->buffers.emplace_back("workspace", workspace_bytes, bands);
  reset();
}

DeviceTensors::DeviceTensors(const Case& c, const HostTensors& inputs, std::size_t workspace_bytes)
    : DeviceTensors(c, workspace_bytes) {
  refill(inputs);
}

DeviceTensors::~DeviceTensors() = default;

void* const* DeviceTensors::data() const { return impl_->pointers.data(); }

Pointers DeviceTensors::pointers() const { return {impl_->specs, impl_->pointers.data()}; }

std::vector<const void*> DeviceTensors::weights() const {
  std::vector<const void*> addresses;
  for (std::size_t i = 0; i < impl_->specs.size(); ++i) {
    if (is_weights(impl_->specs[i])) addresses.push_back(impl_->pointers[i]);
  }
  return addresses;
}

void* DeviceTensors::workspace() const {
  const Buffer& workspace = impl_->buffers.back();
  return workspace.bytes() ? workspace.data() : nullptr;
}

void DeviceTensors::refill(const HostTensors& inputs) {
  for (std::size_t i = 0; i < impl_->specs.size(); ++i) {
    const TensorSpec& spec = impl_->specs[i];
    if (spec.role == Role::input) impl_->buffers[i].expect(encoded(spec, inputs.values[i]));
    if (spec.role == Role::inout) impl_->buffers[i].begin_with(encoded(spec, inputs.values[i]));
  }
}

void DeviceTensors::reset(Contents outputs, Contents workspace) {
  for (const Buffer& buffer : impl_->buffers) buffer.reset(&buffer == &impl_->buffers.back() ? workspace : outputs);
}

void DeviceTensors::protect_inputs(bool on) {
  for (const Buffer& buffer : impl_->buffers) buffer.protect(on);
}

void DeviceTensors::hide_inputs() {
  for (const Buffer& buffer : impl_->buffers) buffer.hide();
}

void DeviceTensors::show_inputs() {
  for (const Buffer& buffer : impl_->buffers) buffer.show();
}

std::uint64_t DeviceTensors::workspace_digest() const {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char byte : impl_->buffers.back().read()) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

bool DeviceTensors::untouched() const {
  for (std::size_t i = 0; i < impl_->specs.size(); ++i) {
    if (impl_->is_written(i) && !impl_->buffers[i].untouched()) return false;
  }
  return true;
}

std::vector<std::vector<float>> DeviceTensors::outputs() const {
  std::vector<std::vector<float>> outputs;
  for (std::size_t i = 0; i < impl_->specs.size(); ++i) {
    if (impl_->is_written(i)) outputs.push_back(decoded(impl_->specs[i], impl_->buffers[i].read()));
  }
  return outputs;
}

std::string DeviceTensors::damage() const {
  for (std::size_t i = 0; i < impl_->buffers.size(); ++i) {
    if (std::string damage = impl_->buffers[i].damage(impl_->dtype(i)); !damage.empty()) return damage;
  }
  return {};
}

}  // namespace ladder

#include "train/held_out.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/backend.h"
#include "core/error.h"
#include "core/graph.h"

namespace ladder::train {
namespace {

constexpr std::int64_t kNoiseSeed = 0x68656c64;  // any number; not one that a person would choose for a training

}  // namespace

std::int32_t HeldOut::time_step(std::size_t i, std::size_t count) {
  return static_cast<std::int32_t>((2 * i + 1) * diffusion::kTimesteps / (2 * count));
}

struct HeldOut::Impl {
  Impl(const StepOptions& step_options, std::vector<std::int32_t> held_out, const Parameters& parameters,
       const WeightRegions& weights, const Region& pixels, const Promotions& promotions)
      : options(step_options),
        images(std::move(held_out)),
        n(std::min<int>(options.batch, static_cast<int>(images.size()))),
        index("index", n * sizeof(std::int32_t)),
        t("t", n * sizeof(std::int32_t)),
        philox("philox", 2 * sizeof(std::int64_t)),
        table("q_sample's table", diffusion::kTimesteps * sizeof(diffusion::Diffused)),
        x_t("noised images", n * options.model.image_elements() * size_of(stored())),
        losses("losses", n * sizeof(float)),
        net(options.model, parameters, options.dtype, n, weights) {
    const auto rows = diffusion::diffused_table(diffusion::make_schedule(options.betas));
    backend::copy_in(table.base, rows.data(), table.bytes);
    program = std::make_unique<Program>(tape(pixels), promotions);
  }

  Dtype stored() const { return storage_dtype(options.dtype); }

  Tape tape(const Region& pixels) const {
    Tape tape;
    const int side = options.model.image_size;
    const std::string sizes = fmt::format("n{} h{} w{} c{}", n, side, side, kImageChannels);
    const std::vector<std::int64_t> shape = {n, side, side, kImageChannels};
    const ValueId pixel = tape.value("pixels", Dtype::u8, {options.images, side, side, kImageChannels}, pixels);
    const ValueId x0 = tape.value("x0", stored(), shape);
    tape.run("batch", "diffusion/batch", fmt::format("{} images{} {}", sizes, options.images, name(stored())),
             {{"pixels", pixel}, {"index", tape.value("index", Dtype::i32, {n}, index)}, {"x0", x0}});
    const ValueId noised = tape.value("x_t", stored(), shape, x_t);
    const ValueId noise = tape.value("noise", Dtype::f32, shape);
    const ValueId times = tape.value("t", Dtype::i32, {n}, t);
    const char* cosine = options.betas == diffusion::Betas::cosine ? " cosine" : "";
    tape.run("noise", "diffusion/q_sample", fmt::format("{}{} {}", sizes, cosine, name(stored())),
             {{"x0", x0},
              {"t", times},
              {"table", tape.value("table", Dtype::f32, {diffusion::kTimesteps, 2}, table)},
              {"philox", tape.value("philox", Dtype::i64, {2}, philox)},
              {"x_t", noised},
              {"noise", noise}});
    const ValueId prediction = net.forward(tape, noised, times);
    tape.run("loss", "diffusion/loss", fmt::format("{} {}", sizes, name(stored())),
             {{"pred", prediction},
              {"noise", noise},
              {"dpred", tape.value("d prediction", stored(), shape)},
              {"losses", tape.value("losses", Dtype::f32, {n}, losses)},
              {"loss", tape.value("loss", Dtype::f32, {1})}});
    return tape;
  }

  double loss() {
    double sum = 0;
    for (std::size_t first = 0; first < images.size(); first += n) {
      std::vector<std::int32_t> numbers(n), times(n);
      for (int i = 0; i < n; ++i) {  // the last batch is filled up with images that do not count
        const std::size_t at = std::min(first + i, images.size() - 1);
        numbers[i] = images[at];
        times[i] = time_step(at, images.size());
      }
      const std::int64_t stream[2] = {kNoiseSeed, static_cast<std::int64_t>(first)};
      backend::copy_in(index.base, numbers.data(), index.bytes);
      backend::copy_in(t.base, times.data(), t.bytes);
      backend::copy_in(philox.base, stream, sizeof(stream));
      program->enqueue(queue);
      queue.synchronize();
      std::vector<float> each(n);
      backend::copy_out(each.data(), losses.base, losses.bytes);
      for (std::size_t i = 0; i < each.size() && first + i < images.size(); ++i) sum += each[i];
    }
    return sum / static_cast<double>(images.size());
  }

  StepOptions options;
  std::vector<std::int32_t> images;
  int n;  // of a batch
  OwnedRegion index, t, philox, table, x_t, losses;
  Unet net;
  std::unique_ptr<Program> program;
  OwnedStream queue;
};

HeldOut::HeldOut(const StepOptions& options, std::vector<std::int32_t> images, const Parameters& parameters,
                 const WeightRegions& weights, const Region& pixels, const Promotions& promotions)
    : impl_(std::make_unique<Impl>(options, std::move(images), parameters, weights, pixels, promotions)) {}

HeldOut::~HeldOut() = default;

double HeldOut::loss() { return impl_->loss(); }

}  // namespace ladder::train

#include "train/step.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include <fmt/format.h>

#include "core/backend.h"
#include "core/error.h"
#include "core/parallel.h"

namespace ladder::train {
namespace {

constexpr std::size_t kSlots = 4;  // steps on their way at a time

// Arrays one behind the other in a region, each at a multiple of 256 bytes.
class Layout {
 public:
  std::size_t add(std::size_t bytes) {
    const std::size_t at = end_;
    end_ = (end_ + bytes + 255) / 256 * 256;
    return at;
  }
  std::size_t bytes() const { return end_; }

 private:
  std::size_t end_ = 0;
};

struct InputLayout : Layout {
  explicit InputLayout(int batch)
      : index(add(batch * sizeof(std::int32_t))),
        t(add(batch * sizeof(std::int32_t))),
        philox(add(2 * sizeof(std::int64_t))),
        hyper(add(sizeof(optimizer::Hyper))) {}
  std::size_t index, t, philox, hyper;
};

struct ResultLayout : Layout {
  explicit ResultLayout(int batch)
      : losses(add(batch * sizeof(float))),
        loss(add(sizeof(float))),
        norm(add(sizeof(float))),
        scale(add(sizeof(float))) {}
  std::size_t losses, loss, norm, scale;
};

void* at(const Region& region, std::size_t offset) { return static_cast<std::byte*>(region.base) + offset; }

}  // namespace

State::State(const Parameters& parameters, Dtype stored_as)
    : values("values", parameters.size() * sizeof(float)),
      first_moments("first moments", values.bytes),
      second_moments("second moments", values.bytes),
      average("average", values.bytes),
      stored(stored_as) {
  if (stored != Dtype::f32) copies = std::make_unique<OwnedRegion>("copies", parameters.size() * size_of(stored));
}

void State::set(const OwnedRegion& which, const std::vector<float>& host) {
  LADDER_CHECK(host.size() * sizeof(float) == which.bytes, which.name);
  backend::copy_in(which.base, host.data(), which.bytes);
}

void State::set_values(const std::vector<float>& host) {
  set(values, host);
  if (!copies) return;
  std::vector<std::byte> rounded(copies->bytes);
  const std::size_t each = size_of(stored);
  parallel_for(static_cast<std::int64_t>(host.size()), 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    encode(stored, host.data() + begin, end - begin, rounded.data() + begin * each);
  });
  backend::copy_in(copies->base, rounded.data(), rounded.size());
}

std::vector<float> State::get(const OwnedRegion& which) const {
  std::vector<float> host(which.bytes / sizeof(float));
  backend::copy_out(host.data(), which.base, which.bytes);
  return host;
}

std::size_t State::bytes() const { return 4 * values.bytes + (copies ? copies->bytes : 0); }

struct Step::Impl {
  struct Slot {
    Slot(std::size_t input_bytes, std::size_t result_bytes) : inputs(input_bytes), results(result_bytes) {}

    PinnedBuffer inputs;
    PinnedBuffer results;
    Event done;
    std::vector<std::int32_t> t;
  };

  Impl(const StepOptions& step_options, const Parameters& model_parameters, State& model_state, const Region& images,
       const Promotions& promotions)
      : options(step_options),
        parameters(model_parameters),
        state(model_state),
        pixels(images),
        input_layout(step_options.batch),
        result_layout(step_options.batch),
        inputs("inputs", input_layout.bytes()),
        results("results", result_layout.bytes()),
        gradients("gradients", parameters.size() * sizeof(float)) {
    if (options.batch < 1 || options.micro_batches < 1 || options.batch % options.micro_batches != 0) {
      throw UsageError(
          fmt::format("a batch of {} cannot be cut into {} equal micro-batches", options.batch, options.micro_batches));
    }
    allocate();
    fill_table();
    prologue = std::make_unique<Program>(prologue_tape(), promotions);
    network = std::make_unique<Program>(network_tape(), promotions);
    if (parts() > 1 || staged_matrices) accumulate_first = std::make_unique<Program>(accumulate_tape(true), promotions);
    if (parts() > 1) accumulate_more = std::make_unique<Program>(accumulate_tape(false), promotions);
    update = std::make_unique<Program>(update_tape(), promotions);
    for (std::size_t i = 0; i < kSlots; ++i) {
      slots.push_back(std::make_unique<Slot>(inputs.bytes, results.bytes));
    }
    if (options.graph) {
      load_kernels();
      graph.emplace(Graph::capture([&](Stream on) { enqueue(on); }));
    }
  }

  int parts() const { return options.micro_batches; }
  int micro_batch() const { return options.batch / options.micro_batches; }
  Dtype stored() const { return storage_dtype(options.dtype); }
  std::vector<std::int64_t> image_shape(int images) const {
    return {images, options.model.image_size, options.model.image_size, kImageChannels};
  }
  std::string image_sizes(int images) const {
    return fmt::format("n{} h{} w{} c{}", images, options.model.image_size, options.model.image_size, kImageChannels);
  }
  std::size_t noised_bytes(int images) const { return images * options.model.image_elements() * size_of(stored()); }
  std::size_t noise_bytes(int images) const { return images * options.model.image_elements() * sizeof(float); }

  void allocate() {
    const auto rows = static_cast<std::size_t>(parameters.embedding_rows());
    const auto matrices = static_cast<std::size_t>(parameters.matrices_end());
    const auto region = [](const char* name, std::size_t bytes) { return std::make_unique<OwnedRegion>(name, bytes); };
    noised = region("noised images", noised_bytes(options.batch));
    noise = region("noise", noise_bytes(options.batch));
    table = region("q_sample's table", diffusion::kTimesteps * sizeof(diffusion::Diffused));
    predicted = region("prediction", noised_bytes(micro_batch()));
    embedding_gradient = region("d emb_layers.1", rows * micro_batch() * sizeof(float));
    gradient_regions = {.matrices = &gradients, .others = &gradients, .embedding = embedding_gradient.get()};
    if (parts() > 1 || stored() != Dtype::f32) {
      staged_matrices = region("gradients of matrices", matrices * size_of(stored()));
      gradient_regions.matrices = staged_matrices.get();
    }
    if (parts() > 1) {
      staged_others = region("gradients of a micro-batch", gradients.bytes);
      gradient_regions.others = staged_others.get();
      noised_part = region("noised images of a micro-batch", noised_bytes(micro_batch()));
      noise_part = region("noise of a micro-batch", noise_bytes(micro_batch()));
      t_part = region("t of a micro-batch", micro_batch() * sizeof(std::int32_t));
      losses_part = region("losses of a micro-batch", micro_batch() * sizeof(float));
    }
  }

  void fill_table() {
    const std::vector<diffusion::Diffused> rows = diffusion::diffused_table(diffusion::make_schedule(options.betas));
    backend::copy_in(table->base, rows.data(), table->bytes);
  }

  // x0 of the batch's images, then x_t and its noise.
  Tape prologue_tape() const {
    Tape tape;
    const int n = options.batch;
    const auto side = options.model.image_size;
    const ValueId pixel = tape.value("pixels", Dtype::u8, {options.images, side, side, kImageChannels}, pixels);
    const ValueId index = tape.value("index", Dtype::i32, {n}, inputs, input_layout.index);
    const ValueId t = tape.value("t", Dtype::i32, {n}, inputs, input_layout.t);
    const ValueId philox = tape.value("philox", Dtype::i64, {2}, inputs, input_layout.philox);
    const ValueId rows = tape.value("table", Dtype::f32, {diffusion::kTimesteps, 2}, *table);
    const ValueId x0 = tape.value("x0", stored(), image_shape(n));
    const ValueId x_t = tape.value("x_t", stored(), image_shape(n), *noised);
    const ValueId eps = tape.value("noise", Dtype::f32, image_shape(n), *noise);
    tape.run("batch", "diffusion/batch", fmt::format("{} images{} {}", image_sizes(n), options.images, name(stored())),
             {{"pixels", pixel}, {"index", index}, {"x0", x0}});
    const char* cosine = options.betas == diffusion::Betas::cosine ? " cosine" : "";
    tape.run("noise", "diffusion/q_sample", fmt::format("{}{} {}", image_sizes(n), cosine, name(stored())),
             {{"x0", x0}, {"t", t}, {"table", rows}, {"philox", philox}, {"x_t", x_t}, {"noise", eps}});
    return tape;
  }

  // A micro-batch, forward and backward.
  Tape network_tape() const {
    Tape tape;
    const int n = micro_batch();
    const bool whole = parts() == 1;
    const ValueId x = tape.value("x_t", stored(), image_shape(n), whole ? *noised : *noised_part);
    const ValueId eps = tape.value("noise", Dtype::f32, image_shape(n), whole ? *noise : *noise_part);
    const ValueId t =
        whole ? tape.value("t", Dtype::i32, {n}, inputs, input_layout.t) : tape.value("t", Dtype::i32, {n}, *t_part);
    const ValueId losses = whole ? tape.value("losses", Dtype::f32, {n}, results, result_layout.losses)
                                 : tape.value("losses", Dtype::f32, {n}, *losses_part);
    const ValueId loss = tape.value("loss", Dtype::f32, {1}, results, result_layout.loss);
    const Unet net(options.model, parameters, options.dtype, n, state.weights(), &gradient_regions);
    const ValueId prediction = net.forward(tape, x, t, predicted.get());
    const ValueId gradient = tape.value("d prediction", stored(), image_shape(n));
    tape.run("loss", "diffusion/loss", fmt::format("{} {}", image_sizes(n), name(stored())),
             {{"pred", prediction}, {"noise", eps}, {"dpred", gradient}, {"losses", losses}, {"loss", loss}});
    tape.add_gradient(prediction, gradient);
    tape.backward();
    return tape;
  }

  // The gradients of a micro-batch into those of the batch, which are fp32.
  Tape accumulate_tape(bool first) const {
    Tape tape;
    const auto add = [&](const char* name, Dtype dtype, const Region& from, std::int64_t begin, std::int64_t end) {
      const std::int64_t count = end - begin;
      const ValueId d =
          tape.value(fmt::format("d {} of a micro-batch", name), dtype, {count}, from, begin * size_of(dtype));
      const ValueId g = tape.value(fmt::format("d {}", name), Dtype::f32, {count}, gradients, begin * sizeof(float));
      tape.run(name, "optimizer/accumulate",
               fmt::format("p{} tensors1 parts{}{} {}", count, parts(), first ? " first" : "", ladder::name(dtype)),
               {{"d", d}, {"g", g}});
    };
    add("matrices", stored(), *staged_matrices, 0, parameters.matrices_end());
    if (staged_others) add("others", Dtype::f32, *staged_others, parameters.matrices_end(), parameters.size());
    return tape;
  }

  Tape update_tape() const {
    Tape tape;
    const std::int64_t count = parameters.size();
    const std::string problem = fmt::format("p{} tensors1{} {}", count, options.clip ? " clip" : "", name(stored()));
    const auto flat = [&](const char* name, const Region& region) {
      return tape.value(name, Dtype::f32, {count}, region);
    };
    const ValueId g = flat("gradients", gradients);
    const ValueId hyper =
        tape.value("hyper", Dtype::f32, {sizeof(optimizer::Hyper) / sizeof(float)}, inputs, input_layout.hyper);
    const ValueId norm = tape.value("norm", Dtype::f32, {1}, results, result_layout.norm);
    const ValueId scale = tape.value("scale", Dtype::f32, {1}, results, result_layout.scale);
    tape.run("norm", "optimizer/norm", problem, {{"g", g}, {"hyper", hyper}, {"norm", norm}, {"scale", scale}});
    const ValueId p = flat("values", state.values);
    const ValueId m = flat("first moments", state.first_moments);
    const ValueId v = flat("second moments", state.second_moments);
    const ValueId ema = flat("average", state.average);
    const ValueId w = state.copies ? tape.value("copies", stored(), {count}, *state.copies) : kNoValue;
    tape.run("update", "optimizer/adamw", problem,
             {{"g", g}, {"scale", scale}, {"hyper", hyper}, {"p", p}, {"m", m}, {"v", v}, {"ema", ema}, {"w", w}});
    return tape;
  }

  template <class Run>
  void each_program(Stream on, const Run& run) const {
    run(*prologue);
    for (int part = 0; part < parts(); ++part) {
      if (parts() > 1) {
        const int n = micro_batch();
        copy_async(noised_part->base, at(*noised, part * noised_bytes(n)), noised_bytes(n), on);
        copy_async(noise_part->base, at(*noise, part * noise_bytes(n)), noise_bytes(n), on);
        copy_async(t_part->base, at(inputs, input_layout.t + part * t_part->bytes), t_part->bytes, on);
      }
      run(*network);
      if (parts() > 1) {
        copy_async(at(results, result_layout.losses + part * losses_part->bytes), losses_part->base, losses_part->bytes,
                   on);
      }
      if (part == 0 && accumulate_first) run(*accumulate_first);
      if (part > 0) run(*accumulate_more);
    }
    run(*update);
  }

  void enqueue(Stream on) const {
    each_program(on, [on](const Program& program) { program.enqueue(on); });
  }

  // Kernels load at their first launch, which a capture does not allow. A gradient that is not finite leaves the state
  // alone.
  void load_kernels() {
    prologue->enqueue(stream);
    network->enqueue(stream);
    if (accumulate_first) accumulate_first->enqueue(stream);
    if (accumulate_more) accumulate_more->enqueue(stream);
    set_bytes_async(gradients.base, 0xff, gradients.bytes, stream);
    update->enqueue(stream);
    set_bytes_async(gradients.base, 0, gradients.bytes, stream);
    stream.synchronize();
  }

  void write(const StepInputs& in, void* host) const {
    const auto batch = static_cast<std::size_t>(options.batch);
    LADDER_CHECK(in.index.size() == batch && in.t.size() == batch);
    auto* const bytes = static_cast<std::byte*>(host);
    const std::int64_t philox[2] = {in.seed, in.offset};
    std::memcpy(bytes + input_layout.index, in.index.data(), batch * sizeof(std::int32_t));
    std::memcpy(bytes + input_layout.t, in.t.data(), batch * sizeof(std::int32_t));
    std::memcpy(bytes + input_layout.philox, philox, sizeof(philox));
    std::memcpy(bytes + input_layout.hyper, &in.hyper, sizeof(in.hyper));
  }

  StepResults read(const Slot& slot) const {
    const auto* const bytes = static_cast<const std::byte*>(slot.results.data());
    StepResults out;
    out.losses.resize(options.batch);
    std::memcpy(out.losses.data(), bytes + result_layout.losses, out.losses.size() * sizeof(float));
    std::memcpy(&out.norm, bytes + result_layout.norm, sizeof(float));
    std::memcpy(&out.scale, bytes + result_layout.scale, sizeof(float));
    double sum = 0;
    for (const float loss : out.losses) sum += loss;
    out.loss = static_cast<float>(sum / options.batch);
    out.t = slot.t;
    return out;
  }

  template <class Run>
  void start(const StepInputs& in, const Run& run) {
    Slot& slot = *slots[next];
    next = (next + 1) % kSlots;
    write(in, slot.inputs.data());
    slot.t = in.t;
    copy_in_async(inputs.base, slot.inputs.data(), inputs.bytes, stream);
    run();
    copy_out_async(slot.results.data(), results.base, results.bytes, stream);
    slot.done.record(stream);
    under_way.push_back(&slot);
  }

  std::vector<float> images(const Region& region, Dtype dtype) const {
    stream.synchronize();
    const std::size_t count = region.bytes / size_of(dtype);
    std::vector<std::byte> raw(region.bytes);
    backend::copy_out(raw.data(), region.base, region.bytes);
    std::vector<float> values(count);
    decode(dtype, raw.data(), count, values.data());
    return values;
  }

  StepOptions options;
  const Parameters& parameters;
  State& state;
  const Region& pixels;
  InputLayout input_layout;
  ResultLayout result_layout;
  OwnedRegion inputs, results, gradients;
  std::unique_ptr<OwnedRegion> noised, noise, table, predicted, embedding_gradient;
  std::unique_ptr<OwnedRegion> staged_matrices, staged_others;                // null where kernels write to `gradients`
  std::unique_ptr<OwnedRegion> noised_part, noise_part, t_part, losses_part;  // null where a batch is not cut
  GradientRegions gradient_regions;
  std::unique_ptr<Program> prologue, network, accumulate_first, accumulate_more, update;
  OwnedStream stream;
  std::optional<Graph> graph;
  std::vector<std::unique_ptr<Slot>> slots;
  std::deque<Slot*> under_way;
  std::size_t next = 0;
};

Step::Step(const StepOptions& options, const Parameters& parameters, State& state, const Region& pixels,
           const Promotions& promotions)
    : impl_(std::make_unique<Impl>(options, parameters, state, pixels, promotions)) {}

Step::~Step() = default;

std::optional<StepResults> Step::submit(const StepInputs& inputs) {
  std::optional<StepResults> oldest;
  if (impl_->under_way.size() == kSlots) oldest = collect();
  impl_->start(inputs, [&] {
    if (impl_->graph) {
      impl_->graph->replay(impl_->stream);
    } else {
      impl_->enqueue(impl_->stream);
    }
  });
  return oldest;
}

std::optional<StepResults> Step::collect() {
  if (impl_->under_way.empty()) return std::nullopt;
  const Impl::Slot& slot = *impl_->under_way.front();
  impl_->under_way.pop_front();
  slot.done.synchronize();
  if (impl_->under_way.empty()) impl_->stream.synchronize();  // where a launch failed, this says so
  return impl_->read(slot);
}

StepResults Step::run_poisoned(const StepInputs& inputs) {
  while (collect()) {
  }
  impl_->start(inputs, [&] {
    impl_->each_program(impl_->stream, [&](const Program& program) { program.enqueue_poisoned(impl_->stream); });
  });
  return *collect();
}

StepResults Step::run_given(const StepInputs& inputs, const std::vector<float>& noised,
                            const std::vector<float>& noise) {
  while (collect()) {
  }
  impl_->stream.synchronize();
  const auto put = [](const OwnedRegion& region, Dtype dtype, const std::vector<float>& values) {
    LADDER_CHECK(values.size() * size_of(dtype) == region.bytes, region.name);
    std::vector<std::byte> raw(region.bytes);
    encode(dtype, values.data(), values.size(), raw.data());
    backend::copy_in(region.base, raw.data(), raw.size());
  };
  put(*impl_->noised, impl_->stored(), noised);
  put(*impl_->noise, Dtype::f32, noise);
  impl_->start(inputs, [&] {
    impl_->each_program(impl_->stream, [&](const Program& program) {
      if (&program != impl_->prologue.get()) program.enqueue(impl_->stream);
    });
  });
  return *collect();
}

Stream Step::stream() const { return impl_->stream; }

const OwnedRegion& Step::gradients() const { return impl_->gradients; }

std::vector<float> Step::noised() const { return impl_->images(*impl_->noised, impl_->stored()); }
std::vector<float> Step::noise() const { return impl_->images(*impl_->noise, Dtype::f32); }
std::vector<float> Step::prediction() const { return impl_->images(*impl_->predicted, impl_->stored()); }

std::vector<const Program*> Step::programs() const {
  std::vector<const Program*> all;
  for (const auto* program :
       {&impl_->prologue, &impl_->network, &impl_->accumulate_first, &impl_->accumulate_more, &impl_->update}) {
    if (*program) all.push_back(program->get());
  }
  return all;
}

double Step::flops() const {
  const Impl& s = *impl_;
  return s.prologue->tape().flops() + s.parts() * s.network->tape().flops() + s.update->tape().flops();
}

std::size_t Step::bytes() const {
  const Impl& s = *impl_;
  std::size_t sum = s.inputs.bytes + s.results.bytes + s.gradients.bytes;
  for (const auto* region : {&s.noised, &s.noise, &s.table, &s.predicted, &s.embedding_gradient, &s.staged_matrices,
                             &s.staged_others, &s.noised_part, &s.noise_part, &s.t_part, &s.losses_part}) {
    if (*region) sum += (*region)->bytes;
  }
  for (const Program* program : programs()) sum += program->bytes();
  return sum;
}

std::size_t Step::num_nodes() const { return impl_->graph ? impl_->graph->num_nodes() : 0; }

std::vector<Step::Timed> Step::time_operations(int repeats) {
  while (collect()) {
  }
  impl_->stream.synchronize();
  // A mark behind every operation, and twice one behind another for what a mark takes itself.
  std::vector<Timed> timed;
  for (const Program* program : programs()) {
    for (std::size_t i = 0; i < program->tape().operations().size(); ++i) {
      timed.push_back({&program->tape().operations()[i], &program->choice(i), 0.0});
    }
  }
  std::vector<std::unique_ptr<Event>> marks;
  const auto mark = [&](Stream on) {
    marks.push_back(std::make_unique<Event>());
    marks.back()->mark(on);
  };
  const Graph marked = Graph::capture([&](Stream on) {
    mark(on);
    mark(on);
    for (const Program* program : programs()) {
      for (std::size_t i = 0; i < program->tape().operations().size(); ++i) {
        program->enqueue(i, on);
        mark(on);
      }
    }
  });
  double empty_us = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    marked.replay(impl_->stream);
    impl_->stream.synchronize();
    empty_us += 1e6 * marks[1]->seconds_since(*marks[0]);
    for (std::size_t i = 0; i < timed.size(); ++i) timed[i].us += 1e6 * marks[i + 2]->seconds_since(*marks[i + 1]);
  }
  for (Timed& t : timed) t.us = std::max(0.0, (t.us - empty_us) / repeats);
  return timed;
}

}  // namespace ladder::train

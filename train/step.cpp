#include "train/step.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>

#include "core/backend.h"
#include "core/error.h"
#include "nn/batches.h"
#include "nn/update.h"
#include "runtime/stream_schedule.h"

namespace ladder::train {
namespace {

// Byte offsets in the region `results`, multiples of 256: a row for each rank, then loss [1], norm [1] and scale [1], all
// fp32. A row has losses [batch of a rank] fp32 and, where there are several ranks, StepInputs::stop as 4 bytes. `bytes` is
// the size of the region.
struct ResultLayout {
  ResultLayout(int batch, int ranks)
      : stop(padded(batch * sizeof(float))), row(ranks > 1 ? stop + 256 : stop), loss(ranks * row) {}
  std::size_t stop, row, loss;
  std::size_t norm = loss + 256, scale = norm + 256, bytes = scale + 256;
};

void* address_of(const Region& region, std::size_t offset) { return static_cast<std::byte*>(region.base) + offset; }

}  // namespace

struct Step::Impl {
  // Host buffers of a step in flight.
  struct Slot {
    Slot(std::size_t input_bytes, std::size_t result_bytes) : inputs(input_bytes), results(result_bytes) {}

    PinnedBuffer inputs;
    PinnedBuffer results;
    Event done;  // the results are in host memory
  };

  Impl(const StepOptions& step_options, const Objective& loss_of, const nn::Parameters& model_parameters,
       nn::State& model_state, const Promotions& promotions)
      : options(step_options),
        objective(loss_of),
        parameters(model_parameters),
        state(model_state),
        hyper_offset(padded(objective.input_bytes())),
        stop_offset(hyper_offset + padded(sizeof(optimizer::Hyper))),
        result_layout(objective.batch(), ranks()),
        inputs("inputs", ranks() > 1 ? stop_offset + 256 : stop_offset),
        results("results", result_layout.bytes),
        layer_gradients("gradients of a micro-batch", parameters.gradient_offset(parameters.size(), stored())) {
    if (parts() > 1 || !update_reads_layers(promotions) || (ranks() > 1 && !sums_stay_in_layers())) {
      gradients = std::make_unique<OwnedRegion>("gradients", parameters.size() * sizeof(float));
    }
    allocate();
    batch = std::make_unique<Program>(batch_tape(), promotions);
    network = std::make_unique<Program>(network_tape(promotions), promotions, options.branches);
    if (gradients) accumulate_first = std::make_unique<Program>(accumulate_tape(true), promotions);
    if (parts() > 1) accumulate_more = std::make_unique<Program>(accumulate_tape(false), promotions);
    if (ranks() > 1) {
      const Program* const last = parts() > 1 ? accumulate_more.get() : accumulate_first.get();
      rank_sum.emplace(*options.communicator, parameters, RankGradients{layer_gradients, stored(), gradients.get()},
                       buckets(), *network, last, options.reduce != Dtype::f32, options.time_sums);
    }
    if (options.time_sums) marks.emplace();
    norm = std::make_unique<Program>(update_tape(nn::append_norm), promotions);
    update = std::make_unique<Program>(update_tape(nn::append_update), promotions);
    for (std::size_t i = 0; i < kMaxInFlight; ++i) {
      slots.push_back(std::make_unique<Slot>(inputs.bytes, results.bytes));
    }
    if (options.graph) {
      load_kernels();
      graph.emplace(Graph::capture([&](Stream on) { for_each_program(on, enqueued(on)); }));
    }
  }

  int parts() const { return objective.batch() / objective.part(); }
  Dtype stored() const { return storage_dtype(options.dtype); }
  int ranks() const { return options.communicator ? options.communicator->size() : 1; }
  std::size_t row_offset() const { return options.communicator ? options.communicator->rank() * result_layout.row : 0; }
  std::vector<GradientBucket> buckets() const {
    if (ranks() > 1) return gradient_buckets(parameters, options.buckets);
    return {{{0, parameters.matrices_end()}, {parameters.matrices_end(), parameters.size()}}};
  }

  // Returns true if --reduce bf16 leaves the mean over ranks where layers write gradients. A mean over another number of
  // ranks would round once more.
  bool sums_stay_in_layers() const {
    return options.reduce == Dtype::bf16 && std::has_single_bit(static_cast<unsigned>(ranks()));
  }

  // Returns true if norm and AdamW can read the gradients as layers write them: in the storage dtype for matrices, in
  // fp32 for the others. They cannot if --use names a version of one of them that accepts only fp32. Both
  // then read a separate fp32 buffer, even with one micro-batch.
  bool update_reads_layers(const Promotions& promotions) const {
    const optimizer::Problem problem = nn::update_problem(parameters, state, stored(), options.clip);
    return promotions.use_can(case_of<optimizer::Norm>(problem)) &&
           promotions.use_can(case_of<optimizer::AdamW>(problem));
  }

  void allocate() {
    const auto region = [](const char* name, std::size_t bytes) { return std::make_unique<OwnedRegion>(name, bytes); };
    batch_arrays = objective.arrays(inputs);
    part_arrays = batch_arrays;  // one micro-batch: the network reads the batch in place
    if (parts() == 1) return;
    losses_part = region("losses of a micro-batch", objective.part() * sizeof(float));
    for (ArrayRows& rows : part_arrays) {
      part_regions.push_back(region("rows of a micro-batch", objective.part() * rows.row_bytes));
      rows.region = part_regions.back().get();
      rows.offset = 0;
    }
  }

  Tape batch_tape() const {
    Tape tape;
    objective.append_batch(tape, inputs);
    return tape;
  }

  // The tape of a micro-batch, forward and backward.
  Tape network_tape(const Promotions& promotions) const {
    Tape tape;
    const int n = objective.part();
    const ValueId losses = losses_part ? tape.value("losses", Dtype::f32, {n}, *losses_part)
                                       : tape.value("losses", Dtype::f32, {n}, results, row_offset());
    const ValueId loss = tape.value("loss", Dtype::f32, {1}, results, result_layout.loss);
    const nn::Binding binding{.parameters = &parameters,
                              .weights = state.weights(),
                              .gradients = &layer_gradients,
                              .dtype = options.dtype,
                              .promotions = &promotions};
    objective.append_loss(tape, binding, part_arrays, losses, loss);
    if (options.batches) tape = nn::with_batches(std::move(tape), promotions);
    return options.branches ? hoist_side_stream(std::move(tape)) : tape;
  }

  // The tape that adds a micro-batch's share of the batch's gradients to these, in fp32. `first`: overwrites them.
  Tape accumulate_tape(bool first) const {
    Tape tape;
    for (const GradientBucket& ranges : buckets()) {
      nn::append_accumulation(tape, parameters, ranges, layer_gradients, stored(), *gradients, ranks() * parts(),
                              first);
    }
    return tape;
  }

  template <class Append>
  Tape update_tape(const Append& append) const {
    Tape tape;
    constexpr std::int64_t kHyper = sizeof(optimizer::Hyper) / sizeof(float);
    const nn::UpdateValues values{.hyper = tape.value("hyper", Dtype::f32, {kHyper}, inputs, hyper_offset),
                                  .norm = tape.value("norm", Dtype::f32, {1}, results, result_layout.norm),
                                  .scale = tape.value("scale", Dtype::f32, {1}, results, result_layout.scale)};
    const nn::Gradients read =
        gradients ? nn::Gradients{gradients.get(), Dtype::f32} : nn::Gradients{&layer_gradients, stored()};
    append(tape, parameters, state, read, values, options.clip);
    return tape;
  }

  // Runs a program; calls its second argument, if any, after each operation is enqueued.
  using Run = std::function<void(const Program&, const std::function<void(std::size_t)>&)>;

  // Calls run() for each program of a step, in order. With several micro-batches, also enqueues copies of each one's
  // rows and losses, because the network program reads and writes fixed addresses. With several ranks, also enqueues
  // the last accumulation and the collectives.
  void for_each_program(Stream on, const Run& run) {
    if (marks) marks->start.mark(on);
    run(*batch, {});
    for (int number = 0; number < parts(); ++number) {
      for (std::size_t i = 0; parts() > 1 && i < part_arrays.size(); ++i) {
        const std::size_t bytes = objective.part() * part_arrays[i].row_bytes;
        copy_async(part_arrays[i].region->base,
                   address_of(*batch_arrays[i].region, batch_arrays[i].offset + number * bytes), bytes, on);
      }
      const bool sums = rank_sum && number + 1 == parts();
      // The last of several micro-batches' losses come after the network.
      const auto gather = [&](Stream sums_stream) {
        if (parts() == 1) gather_results(sums_stream);
      };
      run(*network, sums && options.overlap ? [&](std::size_t i) { rank_sum->after(i, on, gather); }
                                            : std::function<void(std::size_t)>());
      if (losses_part) {
        copy_async(address_of(results, row_offset() + number * losses_part->bytes), losses_part->base,
                   losses_part->bytes, on);
      }
      if (marks && number + 1 == parts()) marks->network.mark(on);
      if (sums) {
        const bool gathered = rank_sum->finish(on) && parts() == 1;
        if (!gathered) gather_results(on);
      } else if (const auto& accumulate = number == 0 ? accumulate_first : accumulate_more) {
        run(*accumulate, {});
      }
    }
    run(*norm, {});
    run(*update, {});
  }

  // Brings every rank's losses and stop word to all ranks.
  void gather_results(Stream on) {
    void* const row = address_of(results, row_offset());
    copy_async(address_of(results, row_offset() + result_layout.stop), address_of(inputs, stop_offset),
               sizeof(std::int32_t), on);
    options.communicator->all_gather(row, results.base, result_layout.row, on);
  }

  static Run enqueued(Stream on) {
    return [on](const Program& program, const std::function<void(std::size_t)>& after) { program.enqueue(on, after); };
  }

  void run_step() {
    if (graph) return graph->replay(stream);
    for_each_program(stream, enqueued(stream));
  }

  // Launches every kernel and collective once: a kernel loads at its first launch, and loading is not allowed during
  // capture. The gradients are NaN (bytes 0xff) for norm and update: the update is skipped, so the state stays
  // unchanged.
  void load_kernels() {
    batch->enqueue(stream);
    network->enqueue(stream);
    if (accumulate_first) accumulate_first->enqueue(stream);
    if (accumulate_more) accumulate_more->enqueue(stream);
    if (rank_sum) {
      rank_sum->finish(stream);
      gather_results(stream);
    }
    const OwnedRegion& read = gradients ? *gradients : layer_gradients;
    set_bytes_async(read.base, 0xff, read.bytes, stream);
    norm->enqueue(stream);
    update->enqueue(stream);
    set_bytes_async(read.base, 0, read.bytes, stream);
    stream.synchronize();
  }

  StepResults read(const Slot& slot) const {
    const auto* const bytes = static_cast<const std::byte*>(slot.results.data());
    StepResults out;
    const std::size_t batch_of_rank = objective.batch();
    out.losses.resize(ranks() * batch_of_rank);
    for (int rank = 0; rank < ranks(); ++rank) {
      const std::byte* const row = bytes + rank * result_layout.row;
      std::memcpy(out.losses.data() + rank * batch_of_rank, row, batch_of_rank * sizeof(float));
      std::int32_t stop = 0;
      if (ranks() > 1) std::memcpy(&stop, row + result_layout.stop, sizeof(stop));
      out.stop = out.stop || stop != 0;
    }
    std::memcpy(&out.norm, bytes + result_layout.norm, sizeof(float));
    std::memcpy(&out.scale, bytes + result_layout.scale, sizeof(float));
    double sum = 0;
    for (const float loss : out.losses) sum += loss;
    out.loss = static_cast<float>(sum / static_cast<double>(out.losses.size()));
    return out;
  }

  template <class Run>
  void start(const StepInputs& in, const Run& run) {
    LADDER_CHECK(in.batch.size() == objective.input_bytes());
    Slot& slot = *slots[next];
    next = (next + 1) % slots.size();
    auto* const host = static_cast<std::byte*>(slot.inputs.data());
    std::memcpy(host, in.batch.data(), in.batch.size());
    std::memcpy(host + hyper_offset, &in.hyper, sizeof(in.hyper));
    const std::int32_t stop = in.stop ? 1 : 0;
    if (ranks() > 1) std::memcpy(host + stop_offset, &stop, sizeof(stop));
    copy_in_async(inputs.base, slot.inputs.data(), inputs.bytes, stream);
    run();
    copy_out_async(slot.results.data(), results.base, results.bytes, stream);
    slot.done.record(stream);
    in_flight.push_back(&slot);
  }

  StepOptions options;
  const Objective& objective;
  const nn::Parameters& parameters;
  nn::State& state;
  std::size_t hyper_offset, stop_offset;  // in `inputs`
  ResultLayout result_layout;
  OwnedRegion inputs, results;
  OwnedRegion layer_gradients;                             // of a micro-batch
  std::unique_ptr<OwnedRegion> gradients;                  // of a batch, fp32; null: the update reads layer_gradients
  std::unique_ptr<OwnedRegion> losses_part;                // of a micro-batch; null with one micro-batch
  std::vector<std::unique_ptr<OwnedRegion>> part_regions;  // rows of a micro-batch; empty with one micro-batch
  std::vector<ArrayRows> batch_arrays, part_arrays;        // the objective's arrays: of a batch, of a micro-batch
  std::unique_ptr<Program> batch, network, accumulate_first, accumulate_more, norm, update;
  std::optional<RankSum> rank_sum;
  struct Marks {
    Event start, network;  // the step's start, and the end of the network's backward pass
  };
  std::optional<Marks> marks;  // with time_sums
  OwnedStream stream;
  std::optional<Graph> graph;
  std::vector<std::unique_ptr<Slot>> slots;
  std::deque<Slot*> in_flight;
  std::size_t next = 0;
};

Step::Step(const StepOptions& options, const Objective& objective, const nn::Parameters& parameters, nn::State& state,
           const Promotions& promotions)
    : impl_(std::make_unique<Impl>(options, objective, parameters, state, promotions)) {}

Step::~Step() = default;

std::optional<StepResults> Step::submit(const StepInputs& inputs) {
  std::optional<StepResults> oldest;
  if (impl_->in_flight.size() == kMaxInFlight) oldest = collect();
  impl_->start(inputs, [&] { impl_->run_step(); });
  return oldest;
}

std::optional<StepResults> Step::collect() {
  if (impl_->in_flight.empty()) return std::nullopt;
  const Impl::Slot& slot = *impl_->in_flight.front();
  impl_->in_flight.pop_front();
  slot.done.synchronize();
  if (impl_->in_flight.empty()) impl_->stream.synchronize();  // throws if a launch failed
  return impl_->read(slot);
}

StepResults Step::run_poisoned(const StepInputs& inputs) {
  while (collect()) {
  }
  impl_->start(inputs, [&] {
    impl_->for_each_program(impl_->stream,
                            [&](const Program& program, const auto&) { program.enqueue_poisoned(impl_->stream); });
  });
  return *collect();
}

StepResults Step::run_on_batch(const StepInputs& inputs) {
  while (collect()) {
  }
  impl_->stream.synchronize();
  impl_->start(inputs, [&] {
    impl_->for_each_program(impl_->stream, [&](const Program& program, const auto& after_operation) {
      if (&program != impl_->batch.get()) program.enqueue(impl_->stream, after_operation);
    });
  });
  return *collect();
}

void Step::replay(Stream stream) const {
  LADDER_CHECK(impl_->graph.has_value());
  impl_->graph->replay(stream);
}

Step::SumTimes Step::sum_times() const {
  const Impl& s = *impl_;
  LADDER_CHECK(s.marks.has_value() && s.rank_sum.has_value());
  s.marks->network.synchronize();
  return {s.marks->network.seconds_since(s.marks->start), s.rank_sum->sums(s.marks->start)};
}

Stream Step::stream() const { return impl_->stream; }

std::vector<float> Step::gradients() const {
  const Impl& s = *impl_;
  if (s.gradients) return s.state.get(*s.gradients);
  std::vector<std::byte> raw(s.layer_gradients.bytes);
  backend::copy_out(raw.data(), s.layer_gradients.base, raw.size());
  const std::int64_t matrices = s.parameters.matrices_end(), all = s.parameters.size();
  std::vector<float> values(all);
  decode(s.stored(), raw.data(), matrices, values.data());
  decode(Dtype::f32, raw.data() + s.parameters.gradient_offset(matrices, s.stored()), all - matrices,
         values.data() + matrices);
  return values;
}

std::vector<const Program*> Step::programs() const {
  std::vector<const Program*> all;
  for (const auto* program : {&impl_->batch, &impl_->network, &impl_->accumulate_first, &impl_->accumulate_more,
                              &impl_->norm, &impl_->update}) {
    if (*program) all.push_back(program->get());
  }
  return all;
}

double Step::flops() const {
  const Impl& s = *impl_;
  const double accumulation = (s.accumulate_first ? s.accumulate_first->tape().flops() : 0) +
                              (s.accumulate_more ? (s.parts() - 1) * s.accumulate_more->tape().flops() : 0);
  return s.batch->tape().flops() + s.parts() * s.network->tape().flops() + accumulation + s.norm->tape().flops() +
         s.update->tape().flops();
}

std::size_t Step::bytes() const {
  const Impl& s = *impl_;
  std::size_t sum = s.inputs.bytes + s.results.bytes + s.layer_gradients.bytes;
  for (const auto* region : {&s.gradients, &s.losses_part}) {
    if (*region) sum += (*region)->bytes;
  }
  for (const auto& region : s.part_regions) sum += region->bytes;
  for (const Program* program : programs()) sum += program->bytes();
  return sum;
}

std::size_t Step::num_nodes() const { return impl_->graph ? impl_->graph->num_nodes() : 0; }

void Step::enqueue(Stream stream, const std::function<void(const Program&, std::size_t)>& after) const {
  impl_->for_each_program(stream, [&](const Program& program, const auto& after_operation) {
    program.enqueue(stream, [&](std::size_t i) {
      if (after_operation) after_operation(i);
      after(program, i);
    });
  });
}

}  // namespace ladder::train

// Sums made of partial sums: the honest version runs once for each of kChunks chunks of a sum's terms, with zeros for the
// other chunks' terms in one of its inputs. The struct Terms of a pass says which input and terms:
//
//     static constexpr auto kInput = ...;              a member of the tensors, void
//     static long long elements(const Problem&);       of that input
//     static int count(const Problem&);                of terms
//     static int of(const Problem&, long long i);      the term that element i of the input belongs to
//     static void only_terms(Problem&, Tensors&);      leaves out what else is added to the sum, if anything is
#pragma once

#include "tests/wrong/wrong.h"

namespace ladder::wrong {

constexpr int kChunks = 4;
static_assert(kChunks < kCopies);  // an input besides the partial sums of all outputs

// A member of the tensors and its number of elements, a member or function of the problem.
template <auto kTensor, auto kSize>
struct Output {
  static constexpr auto kMember = kTensor;
  static constexpr auto kCount = kSize;
};

// The chunk that element i of the input belongs to.
template <class Terms>
__device__ int chunk_of(const auto& p, long long i) {
  return Terms::of(p, i) / ((Terms::count(p) + kChunks - 1) / kChunks);
}

template <class Terms>
struct OneChunk {
  int chunk;

  __device__ float operator()(const auto& v, long long i) const {
    return chunk_of<Terms>(v.p, i) == chunk ? v.load(v.t.*Terms::kInput, i) : 0.0f;
  }
};

// Adds the last chunk kTimes.
template <class Terms, int kTimes>
struct LastChunk {
  __device__ float operator()(const auto& v, long long i) const {
    const float value = v.load(v.t.*Terms::kInput, i);
    return chunk_of<Terms>(v.p, i) == kChunks - 1 ? kTimes * value : value;
  }
};

template <class P, class Terms, int kTimes>
constexpr auto last_chunk = spoiled_input<P, Terms::kInput, &Terms::elements, LastChunk<Terms, kTimes>>;

template <class Element>
struct PartialSums {
  Element* total;
  Element* of[kChunks];
};

// Makes the partial sums of all outputs, then calls finish(PartialSums, number of elements) for each output.
template <class P, class Terms, class... Outputs, class Finish>
void launch_chunks(const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream,
                   const Finish& finish) {
  auto* room = static_cast<char*>(room_for_copies<P>(p, workspace));
  const auto take = [&]<class Element>(Element*& tensor, long long elements) {
    tensor = reinterpret_cast<Element*>(room);
    room += aligned(static_cast<std::size_t>(elements) * (std::is_void_v<Element> ? size_of(p.dtype) : sizeof(float)));
  };
  void* input = nullptr;
  take(input, Terms::elements(p));
  typename P::Tensors tensors[kChunks];
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    typename P::Problem problem = p;
    tensors[chunk] = t;
    if constexpr (requires { Terms::only_terms(problem, tensors[chunk]); }) {
      if (chunk > 0) Terms::only_terms(problem, tensors[chunk]);
    }
    launch_each<P>(p, t, stream, Terms::elements(p), Fill<void, OneChunk<Terms>>{input, {chunk}});
    tensors[chunk].*Terms::kInput = input;
    ((t.*Outputs::kMember ? take(tensors[chunk].*Outputs::kMember, std::invoke(Outputs::kCount, p)) : void()), ...);
    launch_honest<P>(problem, tensors[chunk], workspace, stream);
  }
  const auto finish_one = [&]<class O>(O) {
    const auto of = [&](int chunk) { return tensors[chunk].*O::kMember; };
    if (t.*O::kMember) finish(PartialSums{t.*O::kMember, {of(0), of(1), of(2), of(3)}}, std::invoke(O::kCount, p));
  };
  (finish_one(Outputs{}), ...);
}

template <class Element, class Sum>
struct Total {
  PartialSums<Element> partials;
  Sum sum;

  __device__ void operator()(const auto& v, long long i) const {
    float of[kChunks];
    for (int chunk = 0; chunk < kChunks; ++chunk) of[chunk] = v.load(partials.of[chunk], i);
    v.store(partials.total, i, sum(of));
  }
};

// Every output is sum(partials).
template <class P, class Terms, class... Outputs, class Sum>
void launch_totals(const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream,
                   const Sum& sum) {
  const auto total = [&]<class Element>(const PartialSums<Element>& partials, long long count) {
    launch_each<P>(p, t, stream, count, Total<Element, Sum>{partials, sum});
  };
  launch_chunks<P, Terms, Outputs...>(p, t, workspace, stream, total);
}

// Keeps the partial sums in bf16.
struct Bf16Partials {
  __device__ float operator()(const float* of) const {
    float sum = 0;
    for (int chunk = 0; chunk < kChunks; ++chunk) sum += to_float(from_float<__nv_bfloat16>(of[chunk]));
    return sum;
  }
};

template <class P, class Terms, class... Outputs>
Entry<P> bf16_partials() {
  return {.name = "bf16_partials",
          .launch = [](const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
            launch_totals<P, Terms, Outputs...>(p, t, workspace, stream, Bf16Partials{});
          }};
}

// A block adds one chunk's sums to kThreads outputs.
template <class Element>
struct AddPartial {
  PartialSums<Element> partials;
  long long count;

  __device__ void operator()(const auto&, long long thread) const {
    const auto chunk = thread / kThreads % kChunks;
    const long long i = thread / kThreads / kChunks * kThreads + thread % kThreads;
    if (i < count) atomicAdd(static_cast<float*>(partials.total) + i, static_cast<const float*>(partials.of[chunk])[i]);
  }
};

// Adds the partial sums in whatever order blocks arrive: every answer is within the bound, and no two need be the same.
template <class P, class Terms, class... Outputs>
void launch_atomics(const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
  const auto add = [&]<class Element>(const PartialSums<Element>& partials, long long count) {
    launch_each<P>(p, t, stream, count, Fill<Element, Zero>{partials.total, {}});
    const long long threads = static_cast<long long>(num_blocks(count)) * kThreads * kChunks;
    launch_each<P>(p, t, stream, threads, AddPartial<Element>{partials, count});
  };
  launch_chunks<P, Terms, Outputs...>(p, t, workspace, stream, add);
}

template <class P, class Terms, class... Outputs>
Entry<P> float_atomics() {
  return {.name = "float_atomics", .launch = launch_atomics<P, Terms, Outputs...>, .dtypes = {Dtype::f32}};
}

}  // namespace ladder::wrong

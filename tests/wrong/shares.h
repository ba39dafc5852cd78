// Sums made in shares of their terms, each by the honest version with zeros for the other terms in one of its inputs. A
// Terms says which:
//
//     static constexpr auto kInput = ...;              a member of the tensors, void
//     static long long elements(const Problem&);       of that input
//     static int count(const Problem&);                of terms
//     static int of(const Problem&, long long i);      the term that element i of the input belongs to
//     static void only_terms(Problem&, Tensors&);      leaves out what else is added to the sum, if anything is
#pragma once

#include "tests/wrong/wrong.h"

namespace ladder::wrong {

constexpr int kShares = 4;
static_assert(kShares < kCopies);  // an input besides the shares of all outputs

// A member of the tensors and its number of elements, a member or function of the problem.
template <auto kTensor, auto kSize>
struct Output {
  static constexpr auto kMember = kTensor;
  static constexpr auto kCount = kSize;
};

// The share that element i of the input belongs to.
template <class Terms>
__device__ int share_of(const auto& p, long long i) {
  return Terms::of(p, i) / ((Terms::count(p) + kShares - 1) / kShares);
}

template <class Terms>
struct OneShare {
  int share;

  __device__ float operator()(const auto& v, long long i) const {
    return share_of<Terms>(v.p, i) == share ? v.load(v.t.*Terms::kInput, i) : 0.0f;
  }
};

// Takes the last share kTimes.
template <class Terms, int kTimes>
struct LastShare {
  __device__ float operator()(const auto& v, long long i) const {
    const float value = v.load(v.t.*Terms::kInput, i);
    return share_of<Terms>(v.p, i) == kShares - 1 ? kTimes * value : value;
  }
};

template <class P, class Terms, int kTimes>
constexpr auto last_share = spoiled_input<P, Terms::kInput, &Terms::elements, LastShare<Terms, kTimes>>;

template <class Element>
struct Shares {
  Element* total;
  Element* of[kShares];
};

// Makes the shares of all outputs, then calls finish(Shares, number of elements) for each output.
template <class P, class Terms, class... Outputs, class Finish>
void launch_shares(const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream,
                   const Finish& finish) {
  auto* room = static_cast<char*>(room_for_copies<P>(p, workspace));
  const auto take = [&]<class Element>(Element*& tensor, long long elements) {
    tensor = reinterpret_cast<Element*>(room);
    room += aligned(static_cast<std::size_t>(elements) * (std::is_void_v<Element> ? size_of(p.dtype) : sizeof(float)));
  };
  void* input = nullptr;
  take(input, Terms::elements(p));
  typename P::Tensors shares[kShares];
  for (int share = 0; share < kShares; ++share) {
    typename P::Problem problem = p;
    shares[share] = t;
    if constexpr (requires { Terms::only_terms(problem, shares[share]); }) {
      if (share > 0) Terms::only_terms(problem, shares[share]);
    }
    launch_each<P>(p, t, stream, Terms::elements(p), Fill<void, OneShare<Terms>>{input, {share}});
    shares[share].*Terms::kInput = input;
    ((t.*Outputs::kMember ? take(shares[share].*Outputs::kMember, std::invoke(Outputs::kCount, p)) : void()), ...);
    launch_honest<P>(problem, shares[share], workspace, stream);
  }
  const auto finish_one = [&]<class O>(O) {
    const auto of = [&](int share) { return shares[share].*O::kMember; };
    if (t.*O::kMember) finish(Shares{t.*O::kMember, {of(0), of(1), of(2), of(3)}}, std::invoke(O::kCount, p));
  };
  (finish_one(Outputs{}), ...);
}

template <class Element, class Sum>
struct Total {
  Shares<Element> shares;
  Sum sum;

  __device__ void operator()(const auto& v, long long i) const {
    float of[kShares];
    for (int share = 0; share < kShares; ++share) of[share] = v.load(shares.of[share], i);
    v.store(shares.total, i, sum(of));
  }
};

// Every output is sum(shares).
template <class P, class Terms, class... Outputs, class Sum>
void launch_totals(const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream,
                   const Sum& sum) {
  const auto total = [&]<class Element>(const Shares<Element>& shares, long long count) {
    launch_each<P>(p, t, stream, count, Total<Element, Sum>{shares, sum});
  };
  launch_shares<P, Terms, Outputs...>(p, t, workspace, stream, total);
}

// Keeps the shares in bf16.
struct Bf16Shares {
  __device__ float operator()(const float* of) const {
    float sum = 0;
    for (int share = 0; share < kShares; ++share) sum += to_float(from_float<__nv_bfloat16>(of[share]));
    return sum;
  }
};

template <class P, class Terms, class... Outputs>
Entry<P> bf16_partials() {
  return {.name = "bf16_partials",
          .launch = [](const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
            launch_totals<P, Terms, Outputs...>(p, t, workspace, stream, Bf16Shares{});
          }};
}

// A block adds one share's sums to kThreads outputs.
template <class Element>
struct AddShare {
  Shares<Element> shares;
  long long count;

  __device__ void operator()(const auto&, long long thread) const {
    const auto share = thread / kThreads % kShares;
    const long long i = thread / kThreads / kShares * kThreads + thread % kThreads;
    if (i < count) atomicAdd(static_cast<float*>(shares.total) + i, static_cast<const float*>(shares.of[share])[i]);
  }
};

// Adds the shares in whatever order blocks arrive: every answer is within the bound, and no two need be the same.
template <class P, class Terms, class... Outputs>
void launch_atomics(const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
  const auto add = [&]<class Element>(const Shares<Element>& shares, long long count) {
    launch_each<P>(p, t, stream, count, Fill<Element, Zero>{shares.total, {}});
    const long long threads = static_cast<long long>(num_blocks(count)) * kThreads * kShares;
    launch_each<P>(p, t, stream, threads, AddShare<Element>{shares, count});
  };
  launch_shares<P, Terms, Outputs...>(p, t, workspace, stream, add);
}

template <class P, class Terms, class... Outputs>
Entry<P> float_atomics() {
  return {.name = "float_atomics", .launch = launch_atomics<P, Terms, Outputs...>, .dtypes = {Dtype::f32}};
}

}  // namespace ladder::wrong

// Copyright (c) 2019 A. Author. SPDX-License-Identifier: MIT
// Softmax of every row of a matrix: one block computes one row.
#include <cuda_runtime.h>

#include <cfloat>
#include <cstdio>
#include <vector>

#define CHECK(call)                                                        \
  if (cudaError_t status = call) {                                         \
    printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
    return 1;                                                              \
  }

// Add up, or take the greatest, over the block. Every thread gets the result.
template <int kThreads, bool kMax>
__device__ float block_reduce(float value, float* partial) {
  partial[threadIdx.x] = value;
  __syncthreads();
  for (unsigned stride = kThreads / 2; stride > 0; stride /= 2) {
    if (threadIdx.x < stride) {
      const float other = partial[threadIdx.x + stride];
      partial[threadIdx.x] = kMax ? fmaxf(partial[threadIdx.x], other) : partial[threadIdx.x] + other;
    }
    __syncthreads();
  }
  const float result = partial[0];
  __syncthreads();
  return result;
}

template <int kThreads>
__global__ void softmax_rows(const float* __restrict__ in, float* __restrict__ out, int cols) {
  __shared__ float partial[kThreads];
  const float* row = in + size_t(blockIdx.x) * cols;

  float greatest = -FLT_MAX;
  for (int i = threadIdx.x; i < cols; i += kThreads) greatest = fmaxf(greatest, row[i]);
  greatest = block_reduce<kThreads, true>(greatest, partial);

  float sum = 0;
  for (int i = threadIdx.x; i < cols; i += kThreads) sum += expf(row[i] - greatest);
  sum = block_reduce<kThreads, false>(sum, partial);

  for (int i = threadIdx.x; i < cols; i += kThreads) {
    out[size_t(blockIdx.x) * cols + i] = expf(row[i] - greatest) / sum;
  }
}

int main() {
  const int rows = 1024, cols = 1000;
  std::vector<float> host(size_t(rows) * cols, 1.0f);
  const size_t bytes = host.size() * sizeof(float);
  float *d_in, *d_out;
  CHECK(cudaMalloc(&d_in, bytes));
  CHECK(cudaMalloc(&d_out, bytes));
  CHECK(cudaMemcpy(d_in, host.data(), bytes, cudaMemcpyHostToDevice));
  const int threads = 256;
  softmax_rows<threads><<<rows, threads>>>(d_in, d_out, cols);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(host.data(), d_out, bytes, cudaMemcpyDeviceToHost));
  printf("%g\n", host[0]);
  return 0;
}

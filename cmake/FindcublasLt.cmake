# cuBLASLt, part of every CUDA toolkit and of NVIDIA's wheels. Defines CUDA::cublasLt where find_package(CUDAToolkit) did
# not: the wheels carry libcublasLt.so.13 without the unversioned link. Sets cublasLt_FOUND.
find_path(cublasLt_INCLUDE_DIR cublasLt.h HINTS ${LADDER_PRIVATE}/cuda/nvidia/cu13/include ${CUDAToolkit_INCLUDE_DIRS})
find_library(cublasLt_LIBRARY NAMES cublasLt libcublasLt.so.13 libcublasLt.so.12
             HINTS ${LADDER_PRIVATE}/cuda/nvidia/cu13/lib ${CUDAToolkit_LIBRARY_DIR} /usr/local/cuda/lib64)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  cublasLt REQUIRED_VARS cublasLt_LIBRARY cublasLt_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "bench_gemm has no cuBLASLt beside it")
if(cublasLt_FOUND AND NOT TARGET CUDA::cublasLt)
  add_library(CUDA::cublasLt INTERFACE IMPORTED)
  target_include_directories(CUDA::cublasLt INTERFACE ${cublasLt_INCLUDE_DIR})
  target_link_libraries(CUDA::cublasLt INTERFACE ${cublasLt_LIBRARY})
endif()

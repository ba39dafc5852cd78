# cuDNN and cudnn-frontend. Defines cuDNN::cudnn, and cuDNN::frontend, which links it; sets cuDNN_FOUND.
find_path(cuDNN_INCLUDE_DIR cudnn.h HINTS ${LADDER_PRIVATE}/cuda/nvidia/cudnn/include
          ${LADDER_PRIVATE}/cudnn/nvidia/cudnn/include ${CUDAToolkit_INCLUDE_DIRS})
# The wheels carry libcudnn.so.9 without the unversioned link.
find_library(cuDNN_LIBRARY NAMES cudnn libcudnn.so.9
             HINTS ${LADDER_PRIVATE}/cuda/nvidia/cudnn/lib ${LADDER_PRIVATE}/cudnn/nvidia/cudnn/lib
                   ${CUDAToolkit_LIBRARY_DIR} /usr/local/cuda/lib64)
# cudnn-frontend has an engine of its own that compiles at run time, and refers to NVRTC for it.
find_library(cuDNN_NVRTC_LIBRARY NAMES nvrtc libnvrtc.so.13 libnvrtc.so.12
             HINTS ${LADDER_PRIVATE}/cuda/nvidia/cu13/lib ${CUDAToolkit_LIBRARY_DIR} /usr/local/cuda/lib64)
find_path(cuDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${LADDER_PRIVATE}/include)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  cuDNN REQUIRED_VARS cuDNN_LIBRARY cuDNN_INCLUDE_DIR cuDNN_FRONTEND_INCLUDE_DIR cuDNN_NVRTC_LIBRARY
  REASON_FAILURE_MESSAGE "bench programs have no cuDNN beside them: run ./ladder setup")
if(cuDNN_FOUND AND NOT TARGET cuDNN::cudnn)
  add_library(cuDNN::cudnn INTERFACE IMPORTED)
  target_include_directories(cuDNN::cudnn INTERFACE ${cuDNN_INCLUDE_DIR})
  target_link_libraries(cuDNN::cudnn INTERFACE ${cuDNN_LIBRARY})
  add_library(cuDNN::frontend INTERFACE IMPORTED)
  target_include_directories(cuDNN::frontend INTERFACE ${cuDNN_FRONTEND_INCLUDE_DIR})
  target_link_libraries(cuDNN::frontend INTERFACE cuDNN::cudnn ${cuDNN_NVRTC_LIBRARY})
  # Both halve the time that its header takes a compiler.
  target_compile_definitions(cuDNN::frontend INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB NV_CUDNN_FRONTEND_DISABLE_LOGGING)
endif()

# cuDNN and cudnn-frontend, the baseline. Both are optional: without them the tables have no baseline column.
# Sets LADDER_CUDNN and, if true, defines the target ladder_cudnn.
set(LADDER_CUDNN FALSE)
find_path(CUDNN_INCLUDE cudnn.h HINTS ${LADDER_PRIVATE}/cuda/nvidia/cudnn/include
          ${LADDER_PRIVATE}/cudnn/nvidia/cudnn/include ${CUDAToolkit_INCLUDE_DIRS})
# The wheels carry libcudnn.so.9 without the unversioned link.
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9
             HINTS ${LADDER_PRIVATE}/cuda/nvidia/cudnn/lib ${LADDER_PRIVATE}/cudnn/nvidia/cudnn/lib
                   ${CUDAToolkit_LIBRARY_DIR} /usr/local/cuda/lib64)
# cudnn-frontend has an engine of its own that compiles at run time, and refers to NVRTC for it.
find_library(CUDNN_NVRTC NAMES nvrtc libnvrtc.so.13 libnvrtc.so.12
             HINTS ${LADDER_PRIVATE}/cuda/nvidia/cu13/lib ${CUDAToolkit_LIBRARY_DIR} /usr/local/cuda/lib64)
find_path(CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${LADDER_PRIVATE}/include)

if(CUDNN_INCLUDE AND CUDNN_LIBRARY AND CUDNN_NVRTC AND CUDNN_FRONTEND_INCLUDE)
  set(LADDER_CUDNN TRUE)
  add_library(ladder_cudnn INTERFACE)
  target_include_directories(ladder_cudnn SYSTEM INTERFACE ${CUDNN_FRONTEND_INCLUDE} ${CUDNN_INCLUDE})
  target_link_libraries(ladder_cudnn INTERFACE ${CUDNN_LIBRARY} ${CUDNN_NVRTC})
  message(STATUS "Baseline: cuDNN from ${CUDNN_LIBRARY}")
else()
  message(STATUS "No baseline: cuDNN needs cudnn.h (${CUDNN_INCLUDE}), libcudnn (${CUDNN_LIBRARY}), libnvrtc "
                 "(${CUDNN_NVRTC}) and the "
                 "cudnn-frontend headers (${CUDNN_FRONTEND_INCLUDE}); `./ladder setup` fetches the headers")
endif()

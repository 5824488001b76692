#ifndef HEDDLE_C_STATUS_H_
#define HEDDLE_C_STATUS_H_

/* What the functions of both C interfaces return, heddle/c_api.h and heddle/c_engine.h. */
typedef enum heddle_status {
  HEDDLE_OK = 0,
  /* The caller's mistake; the message names the argument and the values. */
  HEDDLE_INVALID_ARGUMENT = 1,
  /* Nothing wrong, but not implemented for this dtype, size or device. */
  HEDDLE_UNSUPPORTED = 2,
  /* Of the workspace, or of the machine, which may also have no more threads to give. */
  HEDDLE_OUT_OF_MEMORY = 3,
  HEDDLE_CUDA_ERROR = 4,
  /* A bug of heddle. */
  HEDDLE_INTERNAL_ERROR = 5
} heddle_status;

#endif /* HEDDLE_C_STATUS_H_ */

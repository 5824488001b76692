#include "heddle/c_api.h"
#include "heddle/config.h"

#include "capi/last_error.h"

int32_t heddle_abi_version() { return HEDDLE_ABI_VERSION; }

const char* heddle_version() { return heddle::kVersion; }

const char* heddle_last_error() { return heddle::capi::last_message(); }

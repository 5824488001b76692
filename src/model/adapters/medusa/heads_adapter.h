#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/adapters/adapter.h"
#include "model/adapters/medusa/medusa_files.h"

namespace heddle::model {

/// A folder of Medusa heads alone: answers of its rows are the model's own.
class HeadsAdapter : public Adapter {
 public:
  HeadsAdapter(const std::string& folder, std::shared_ptr<MedusaFiles> heads) : Adapter(folder) {
    base_model_ = heads->config().base_model;
    set_heads(std::move(heads));
  }

  void check_fits(const ModelDims& /*dims*/) const override {}  // as the heads do
  [[nodiscard]] std::vector<std::string> warnings(const ModelDims& /*dims*/) const override {
    return heads()->warnings();
  }
};

}  // namespace heddle::model

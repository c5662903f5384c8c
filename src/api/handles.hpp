// What the opaque handles of the C header point to.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "api/devices.hpp"
#include "core/plan.hpp"
#include "tilewise/tilewise.h"

struct tilewise_device {
    const tilewise::api::KnownDevice* known;
    std::string json;
};

struct tilewise_event {
    const tilewise::api::KnownDevice* known;
    void* event;  // the backend's
};

// Immutable but for the texts, which are written when someone first reads them: most plans are launched and never printed.
struct tilewise_plan {
    tilewise::Plan plan;
    tilewise_attention call{};  // what it was made from, if that was of today's size, to know the same call at a glance
    std::string kernel;
    mutable std::once_flag text_written, json_written;
    mutable std::string text, json;
};

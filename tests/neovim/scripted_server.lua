-- A language server inside Neovim that answers exactly what a test says, also what the real one never would.
--
-- `script.answers[method]` is the result, `vim.NIL` for null, or a function of the parameters that returns result and
-- error. A method in `script.held` is answered when the test calls `script.release(method, index)`.

script = { answers = {}, held = {}, waiting = {}, asked = {}, told = {}, cancelled = {} }

local capabilities = {
  positionEncoding = "utf-16",
  textDocumentSync = { openClose = true, change = 2 },
  inlineCompletionProvider = {},
  codeActionProvider = true,
}

script.answers.initialize = function()
  return { capabilities = capabilities, serverInfo = { name = "midspan", version = "0.1.0" } }
end
script.answers["textDocument/inlineCompletion"] = { items = {} }
script.answers["midspan/status"] = { state = "ready" }
script.answers["midspan/editPresets"] = {
  presets = {
    { id = "refill", title = "Re-fill the selection", strength = 1.0 },
    { id = "touch_up", title = "Touch up the selection", strength = 0.3 },
  },
  instructions = false,
}

---@param request table
local function answer(request)
  local value, err = script.answers[request.method], nil
  if type(value) == "function" then
    value, err = value(request.params)
  end
  vim.schedule(function()
    if request.done then -- `initialize` has none
      request.done(request.id)
    end
    request.callback(err, value)
  end)
end

--- Answers a request that was held back, by default the oldest one.
function script.release(method, index)
  answer(table.remove(script.waiting[method], index or 1))
end

return function(dispatchers)
  local is_closing, last_id = false, 0
  script.notify = function(method, params)
    vim.schedule(function()
      dispatchers.notification(method, params)
    end)
  end
  return {
    request = function(method, params, callback, done)
      last_id = last_id + 1
      local request = { id = last_id, method = method, params = params, callback = callback, done = done }
      table.insert(script.asked, { id = last_id, method = method, params = params })
      if script.held[method] then
        script.waiting[method] = script.waiting[method] or {}
        table.insert(script.waiting[method], request)
      else
        answer(request)
      end
      return true, last_id
    end,
    notify = function(method, params)
      if method == "$/cancelRequest" then
        table.insert(script.cancelled, params.id)
      elseif method == "exit" then
        is_closing = true
        vim.schedule(function()
          dispatchers.on_exit(0, 0)
        end)
      else
        table.insert(script.told, { method = method, params = params })
      end
      return true
    end,
    is_closing = function()
      return is_closing
    end,
    terminate = function()
      is_closing = true
    end,
  }
end

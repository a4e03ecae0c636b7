--- `:Midspan restart`: starts the server again once the old one has gone, by force if it does not go.
local GRACE_MS, POLL_MS = 3000, 50

return function()
  vim.lsp.enable("midspan", false)
  local deadline = vim.uv.now() + GRACE_MS
  local function start_when_gone()
    local running = vim.lsp.get_clients({ name = "midspan" })
    if #running == 0 then
      vim.lsp.enable("midspan")
      vim.notify("Midspan: language server restarted")
      return
    end
    if vim.uv.now() > deadline then
      for _, client in ipairs(running) do
        client:stop(true)
      end
    end
    vim.defer_fn(start_when_gone, POLL_MS)
  end
  start_when_gone()
end

-- Configuration of the language server for `vim.lsp.enable("midspan")`; override with `vim.lsp.config("midspan", ...)`.

---@type vim.lsp.Config
return {
  cmd = { "midspan", "lsp" },
  -- The embedded checkpoint knows Python; a larger one deserves a longer list.
  filetypes = { "python" },
  root_markers = { "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", ".git" },
  -- A single file without a project is completed too.
  workspace_required = false,
  handlers = {
    ["midspan/status"] = function(_, result, ctx)
      require("midspan.status").remember(ctx.client_id, result)
    end,
  },
}
